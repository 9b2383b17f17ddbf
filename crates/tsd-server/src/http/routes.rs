//! Handlers of the routes.

mod admin;
mod annotation;
mod cardinality;
mod cluster;
mod cluster_drain;
mod graph;
mod home;
mod logs;
mod page;
mod process_stats;
mod put;
pub(crate) mod quarantine;
mod query;
mod query_control;
pub(super) mod query_list;
mod response_stream;
mod search;
mod serializers;
pub(crate) mod snapshot;
pub(crate) mod static_files;
mod stats_format;
mod suggest;
mod tree;
mod uid;
pub(crate) mod verify;

use tsd_protocol::ApiError;

use super::{error::HttpError, request::HttpRequest, response::HttpResponse};
use crate::route::Route;

/// Dispatches a request to its route.
pub(super) async fn dispatch(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.path.route {
        Route::Put => put::put(request).await,
        Route::Rollup => put::rollup(request).await,
        Route::Histogram => put::histogram(request).await,
        Route::Annotation => annotation::annotation(&request).await,
        Route::Annotations => annotation::annotations(&request).await,
        Route::Tree => tree::tree(&request).await,
        Route::Query => query::query(request).await,
        Route::Search => search::search(&request).await,
        Route::Suggest => suggest::suggest(&request, true).await,
        Route::LegacySuggest => suggest::suggest(&request, false).await,
        Route::Uid => uid::uid(&request).await,
        Route::Stats => admin::stats(&request).await,
        Route::LegacyStats => Ok(admin::legacy_stats(&request).await),
        Route::Status => admin::status(&request).await,
        Route::Health => admin::health(&request).await,
        Route::Config => admin::config(&request),
        Route::Version => admin::version(&request),
        Route::LegacyVersion => Ok(admin::legacy_version(&request)),
        Route::Aggregators => admin::aggregators(&request),
        Route::LegacyAggregators => Ok(admin::aggregator_names()),
        Route::DropCaches => admin::drop_caches(&request),
        Route::Home => page::home(&request),
        Route::Metrics => home::metrics(&request),
        Route::Graph => graph::graph(&request).await,
        Route::DieDieDie => Ok(home::diediedie(&request)),
        Route::Quarantine => quarantine::quarantine(&request).await,
        Route::Verify => verify::verify(&request).await,
        Route::Snapshot => snapshot::snapshot(&request).await,
        Route::Cluster => cluster::cluster(&request).await,
        Route::Serializers => serializers::serializers(&request),
        Route::Logs => logs::logs(&request),
        Route::StaticFile | Route::Favicon => static_files::static_file(&request).await,
        Route::Unknown => Err(ApiError::endpoint_not_found().into()),
    }
}
