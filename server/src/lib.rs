//! The control plane: REST API, domain and console host.
