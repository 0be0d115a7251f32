//! Containers by the Docker engine.
