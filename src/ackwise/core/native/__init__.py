"""What goes over the native API, as values: the server reads what the client writes, and the other way round."""
