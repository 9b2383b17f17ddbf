//! Types of the futures of store calls.

use std::{future::Future, pin::Pin};

use crate::error::StorageError;

/// A boxed future; it makes the trait usable as `dyn Storage`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a call of a store.
pub type StorageFuture<'a, T> = BoxFuture<'a, Result<T, StorageError>>;
