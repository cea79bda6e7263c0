"""Files of clients: documents, read and written by processes of their own, and their translations."""
