//! `/q` with `ascii` and `json`, and with the options of a graph. Pictures are not compared, since the gnuplot of the cluster draws
//! nothing.

use crate::differential::{data::Data, random::Random, request::Request};

use super::query;

/// Parameters of a picture, with values that both accept; they do not change points and their description.
const OF_PICTURES: &[(&str, &str)] = &[
    ("wxh", "800x600"),
    ("yrange", "[0:100]"),
    ("y2range", "[1:50]"),
    ("ylabel", "requests"),
    ("title", "of a day"),
    ("ylog", ""),
    ("nokey", ""),
    ("bgcolor", "xFFFFFF"),
    ("fgcolor", "x000000"),
    ("smooth", "csplines"),
    ("smooth", "unique"),
    ("style", "points"),
];

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    let (start, end) = query::range(random);
    let is_long = end - start > 40_000;
    let mut request = Request::get("/q")
        .parameter("start", query::time_text(start, random))
        .parameter("end", query::time_text(end, random));
    let count = random.between(0, 5) / 3 + 1;
    let mut metrics: Vec<_> =
        (0..count).map(|_| query::metric_text(data, is_long, random)).collect();
    // OpenTSDB finds no point of the whole range, so such a metric gets a separate graph.
    if let Some(whole) = metrics.iter().position(|metric| metric.contains("0all")) {
        metrics = vec![metrics.swap_remove(whole)];
    }
    for metric in metrics {
        // OpenTSDB 2.4.1 fails without `o`.
        request = request.parameter("m", metric);
        request = request.parameter("o", random.pick(&["", "", "axis x1y2"]));
    }
    if random.chance(30) {
        let (name, value) = OF_PICTURES[random.index(OF_PICTURES.len())];
        request = request.parameter(name, value);
    }
    for (flag, percent) in [("no_annotations", 15), ("global_annotations", 30), ("nagios", 20)] {
        if random.chance(percent) {
            request = request.flag(flag);
        }
    }
    // OpenTSDB's cached files may lack newer points.
    request.flag(if random.chance(60) { "ascii" } else { "json" }).flag("nocache")
}
