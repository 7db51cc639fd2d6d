"""A broker, a Spark pipeline and some poison, in a temporary folder."""
