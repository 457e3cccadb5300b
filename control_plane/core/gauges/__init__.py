"""What operators watch: how much waits where, for how long, and on how many machines."""
