//! `tsdb query`: points as lines.

mod words;

pub(crate) use words::{WordsError, parse};
pub(crate) async fn print(
    _e: &tsd_engine::EngineHandle,
    _q: &tsd_query::RawQuery,
) -> anyhow::Result<()> {
    Ok(())
}
