"""How fast a datastore is built and searched: against the device's own limits, other procedures and other libraries."""
