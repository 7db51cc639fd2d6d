"""The broker: group commit, long polls, duties, drain."""
