"""The demo: the flights that left New York in 2013 pass through a queue manager that is killed on the way."""
