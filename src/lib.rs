//! Root package: carries the tests and benches that look at the workspace from outside.
