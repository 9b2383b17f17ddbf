//! `/q` with `ascii`. Its other forms need gnuplot beside OpenTSDB.

use crate::{data::Data, random::Random, request::Request};

use super::query;

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    let (start, end) = query::range(random);
    let is_long = end - start > 40_000;
    let mut request = Request::get("/q")
        .parameter("start", query::time_text(start, random))
        .parameter("end", query::time_text(end, random));
    for _ in 0..=random.between(1, 100) / 80 {
        // OpenTSDB 2.4.1 fails without `o`.
        request = request.parameter("m", query::metric_text(data, is_long, random));
        request = request.parameter("o", random.pick(&["", "", "axis x1y2"]));
    }
    // Its files of earlier responses may lack points that were written since.
    request.flag("ascii").flag("nocache")
}
