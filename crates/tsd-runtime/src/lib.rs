//! What the parts of a daemon run on: supervised actors, the clock, standstills, and the memory of the process.
//!
//! The engine, its reads and the server build on it. It knows nothing of points: no table, no name, no query.
//!
//! | stage | modules |
//! |---|---|
//! | settings | `settings`: structs with their defaults |
//! | run | `actor`: actors and their threads, the only module that uses actix; `clock`: the current time |
//! | discard | `standstill`: whether the process stood still since it received a write |
//! | watch | `thread_probe`: whether a thread still runs its tasks |
//! | trace | `log_origin`: the request or connection that log lines name |
//! | bound | `process_memory`: the memory that connections, bodies and queries share |

mod actor;
mod clock;
mod log_origin;
mod process_memory;
mod settings;
mod standstill;
mod thread_probe;

pub use actor::{
    Actor, ActorContext, ActorRef, ActorThread, ActorThreads, AskError, Reply, SendError,
    run_actors,
};
pub use clock::{Clock, SystemClock};
pub use log_origin::LogOrigin;
pub use process_memory::{
    FixedShare, MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory,
};
pub use standstill::{
    Epoch, Outdated, Receipt, Requester, STANDSTILL, Standstills, boot_ms, stood_still_since,
};
pub use thread_probe::ThreadProbe;
