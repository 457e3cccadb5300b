"""What the page of the gateway needs: sessions, and a desk at the platform."""
