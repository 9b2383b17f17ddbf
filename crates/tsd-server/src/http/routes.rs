//! What each route answers.

mod admin;
mod annotation;
mod home;
mod put;
mod query;
mod query_list;
mod search;
mod suggest;
mod uid;

use std::fmt::Write;

use tsd_protocol::ApiError;

use super::{error::HttpError, reply::Reply, route::Route, service::Asked};

/// Hands a request to its route.
pub(super) async fn dispatch(asked: Asked<'_>) -> Result<Reply, HttpError> {
    match asked.path.route {
        Route::Put => put::put(asked).await,
        Route::Rollup => put::rollup(asked).await,
        Route::Histogram => put::histogram(asked).await,
        Route::Annotation => annotation::annotation(&asked).await,
        Route::Annotations => annotation::annotations(&asked).await,
        Route::Query => query::query(asked).await,
        Route::Search => search::search(&asked).await,
        Route::Suggest => suggest::suggest(&asked, true).await,
        Route::LegacySuggest => suggest::suggest(&asked, false).await,
        Route::Uid => uid::uid(&asked).await,
        Route::Stats => admin::stats(&asked).await,
        Route::LegacyStats => Ok(admin::legacy_stats(&asked).await),
        Route::Status => admin::status(&asked).await,
        Route::Config => admin::config(&asked),
        Route::Version => admin::version(&asked),
        Route::LegacyVersion => Ok(admin::legacy_version(&asked)),
        Route::Aggregators => admin::aggregators(&asked),
        Route::LegacyAggregators => Ok(admin::aggregator_names()),
        Route::DropCaches => admin::drop_caches(&asked),
        Route::Home => Ok(home::home(asked.shared)),
        Route::Metrics => home::metrics(&asked),
        Route::DieDieDie => Ok(home::diediedie(&asked)),
        Route::Unknown => Err(ApiError::endpoint_not_found().into()),
    }
}

/// Bytes as OpenTSDB writes them in texts.
fn upper_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02X}");
        hex
    })
}
