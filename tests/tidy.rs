//! Rules of the repository that a compiler does not check: edges between crates and between stages of a query, circles of imports, names and words, plain prose,
//! statuses of responses, links, licences.

mod circles;
mod crates;
mod licences;
mod links;
mod names;
mod prose;
mod sources;
mod stages;
mod statuses;
