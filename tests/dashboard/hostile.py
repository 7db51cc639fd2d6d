"""Names and errors that attack a page that shows them."""

HOSTILE = "<img src=x onerror=alert(1)>\"'/&amp; \u202eevil\u202c שלום"
LONG_LINE = "<script>alert(2)</script>" + "x" * 8000
