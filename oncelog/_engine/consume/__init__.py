"""Reading: batches are fetched ahead, handed out in order, and positions committed."""
