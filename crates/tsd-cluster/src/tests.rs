//! Runs the state machines together: a model in every order, a simulation of many nodes.

mod model;
mod simulation;
