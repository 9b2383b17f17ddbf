//! Rules of the repository that a compiler does not check: edges between crates and between stages of a query, names and words,
//! statuses of responses, links, licences.

mod crates;
mod licences;
mod links;
mod names;
mod sources;
mod stages;
mod statuses;
