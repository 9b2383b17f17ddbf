//! Tests of the engine on real stores.

mod corrections;
