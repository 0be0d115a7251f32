//! Containers by runc.
