//! Annotations, meta objects and trees behind a started engine.

mod annotations;
mod meta_objects;
mod trees;
