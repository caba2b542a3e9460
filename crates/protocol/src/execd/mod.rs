//! Models of execd, the daemon inside each sandbox (contract: execd §4, §5, §9, §10, §11).
