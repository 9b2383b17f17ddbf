//! Small requests and errors.

use crate::differential::{random::Random, request::Request};

pub(super) fn request(random: &mut Random) -> Request {
    let paths = [
        "/api/aggregators",
        "/aggregators",
        "/api/nope",
        "/nope",
        "/api/config/filters",
        "/api/stats/jvm",
        "/api/stats/threads",
        "/api/stats/region_clients",
        "/api/query",
        "/api/query/last",
        "/api/query/exp",
        "/api/query/gexp",
        "/api/search/lookup",
        "/api/search/nope",
        "/api/search",
        "/api/suggest",
        "/api/annotation",
        "/api/annotations",
        "/api/put",
        "/api/rollup",
        "/api/histogram",
        "/api/dropcaches",
        "/api/v1/aggregators",
        "/api/v2/aggregators",
        "/api/vx/aggregators",
        "/suggest?type=metrics&q=no",
        "/api/version/x",
        "/api/tree",
        "/api/uid",
        "/api",
        "/q",
        "/q?start=1356998400",
        "/s/nope",
        "/api/put/x",
        "/api/query?start=1356998400",
        "/api/query?m=sum:m",
        "/api/query?start=1356998400&m=",
        "/api/query?start=1356998400&m=sum",
        "/api/query?start=x&m=sum:m",
        "/api/query?start=2&end=1&m=sum:m",
        "/api/query?start=2&end=2&m=sum:no.such",
        "/api/query?start=1h30m-ago&end=1y-ago&m=sum:no.such",
        "/api/query?start=2013/01/01&end=2013/01/02-00:00&m=sum:no.such",
        "/api/query?start=2013/1/1&m=sum:m",
        "/api/query?start=1356998400&tsuid=sum:zz",
        "/api/query?start=1356998400&tsuid=sum:000001",
        "/api/query?start=1356998400&m=sum:1m-avg:x:y:z:m",
        "/api/aggregators?jsonp=f",
        "/api/aggregators?serializer=nope",
        "/api/config/nope",
        "/api/dropcaches?jsonp=f",
        "/api/suggest?type=metrics&q=s&max=2&jsonp=f",
        "/api/suggest?type=tagk&q=ho&method_override=post",
        "/api/annotations?start_time=2&end_time=3",
        "/api/annotation?start_time=2&jsonp=f",
        "/api/uid/assign?metric=&tagk=",
        "/api/stats/nope",
        "/api/query/nope",
        "/api/query/last?timeseries=m{host",
        "/api/query/last?timeseries=&back_scan=5",
        "/api/query/gexp?start=1356998400&exp=",
        "/api/query/gexp?start=1356998400",
        "/api/query/gexp?exp=scale(sum:m,2)",
        "/API/AGGREGATORS",
        "/api/Aggregators/",
        "//api/aggregators",
        "/api//aggregators",
        "/api/query?start=-5&m=sum:m",
        "/api/query?start=13569984000000&end=13569984000001&m=sum:no.such",
    ];
    let path = paths[random.index(paths.len())];
    let methods = ["GET", "GET", "GET", "POST", "DELETE", "PUT"];
    let method = methods[random.index(methods.len())];
    // Caches are only dropped here.
    let mut request = Request::get(path).method(method);
    if method != "GET" && random.chance(50) {
        request = request.text(random.pick(&["", "{}", "[]", "{", "null", "nope", "[{}]"]));
    }
    request
}
