"""What must survive: kill -9, lost power, full disks, broken connections, and many hands at once."""
