//! Rules of the repository that a compiler does not check: edges between crates and between stages of a query, circles of imports, names and words,
//! statuses of responses, links, licences.

mod circles;
mod crates;
mod licences;
mod links;
mod names;
mod sources;
mod stages;
mod statuses;
