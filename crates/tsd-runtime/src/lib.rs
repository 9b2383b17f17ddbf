//! What the parts of a daemon run on: supervised actors, the clock, and the memory of the process.
//!
//! The engine, its reads and the server build on it. It knows nothing of points: no table, no name, no query.
//!
//! | stage | modules |
//! |---|---|
//! | settings | `settings`: structs with their defaults |
//! | run | `actor`: actors and their threads, the only module that uses actix; `clock`: the current time |
//! | bound | `process_memory`: the memory that connections, bodies and queries share |

mod actor;
mod clock;
mod process_memory;
mod settings;

pub use actor::{
    Actor, ActorContext, ActorRef, ActorThread, ActorThreads, AskError, Reply, SendError,
    run_actors,
};
pub use clock::{Clock, SystemClock};
pub use process_memory::{
    FixedShare, MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory,
};
