//! Test fixtures: an in-process server, fault-injecting proxies, waiting without sleeping.
