//! Starting a process in new namespaces.
