//! Nothing but its dependencies: see its `Cargo.toml`.
