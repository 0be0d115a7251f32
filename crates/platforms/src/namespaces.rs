//! Raw Linux namespaces.
