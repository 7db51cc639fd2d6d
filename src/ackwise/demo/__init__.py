"""Demo: a store in a temporary folder, and a Spark pipeline over orders. Some orders fail."""
