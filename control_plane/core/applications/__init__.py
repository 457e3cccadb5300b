"""Applications: the business systems that submit work, and the keys that speak for them."""
