//! Empty on purpose: this package exists for its dependency list.
