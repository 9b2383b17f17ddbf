//! Drives the web page in a real headless Chromium, against a daemon with test points.
//!
//! ```text
//! tests/page.sh [--only NAME]
//! ```
//!
//! Each check prints its actions and observations; one that fails is run once more, and its second failure ends the run.
//! Pictures of the views are written to `target/page`, with `UPDATE_DOCS=1` to `docs/images`. Without a browser the run is
//! skipped and succeeds; `tests/page.sh` tries to install one.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod cluster_checks;
mod console;
mod data;
mod graph_checks;
mod hbase;
mod link_checks;
mod picture;
mod query_checks;
mod touch_checks;
mod view_checks;
mod webdriver;
mod zone_checks;

use std::{
    cell::RefCell,
    env, fs, iter,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use serde_json::json;
use tsd_testkit::{Arguments, Daemon, DaemonBuilder};

use crate::webdriver::Browser;

/// Largest picture in the repository.
const PICTURE_BYTES: usize = 150 << 10;

/// Environment of a check.
pub(crate) struct Bench {
    pub(crate) browser: Browser,
    pub(crate) daemon: Daemon,
    /// Beginnings of addresses of other daemons whose pages are also opened.
    pub(crate) others: RefCell<Vec<String>>,
    /// Directory of the browser's downloads.
    pub(crate) downloads: PathBuf,
    pictures: PathBuf,
    driver: PathBuf,
    chromium: PathBuf,
}

impl Bench {
    /// Address of the page, with the text after `#`.
    pub(crate) fn url(&self, hash: &str) -> String {
        format!("http://{}/{}{hash}", self.daemon.address(), if hash.is_empty() { "" } else { "#" })
    }

    /// Opens a view of the page anew.
    pub(crate) fn open(&self, hash: &str) {
        self.browser.open_anew(&self.url(hash));
        self.browser.wait("document.querySelector('main > :not(noscript)')");
    }

    /// Opens a graph and waits until it is drawn.
    pub(crate) fn open_graph(&self, hash: &str) {
        self.open(hash);
        self.wait_drawn();
    }

    /// Waits until a query has ended and its points are drawn.
    pub(crate) fn wait_drawn(&self) {
        self.browser.wait_drawn();
    }

    /// Another browser, on a machine in this time zone.
    pub(crate) fn browser_in(&self, zone: &str) -> Browser {
        let profile = self.downloads.with_file_name(zone.replace('/', "-"));
        Browser::start(&self.driver, &self.chromium, &profile, Some(zone))
    }

    /// Keeps a picture of the page.
    pub(crate) fn picture(&self, name: &str) {
        let file = self.pictures.join(name);
        let png = picture::with_palette(&self.browser.screenshot());
        fs::write(&file, &png).expect("write the picture");
        let bytes = png.len();
        println!("page:   picture {name}, {} KB", bytes.div_ceil(1024));
        assert!(bytes < PICTURE_BYTES, "{name} is larger than {PICTURE_BYTES} bytes");
    }

    /// Keeps three pictures of a view: in light colours, in dark colours, and on a phone, scrolled to `part`.
    pub(crate) fn pictures(&self, view: &str, part: &str) {
        self.picture(&format!("{view}.png"));
        self.colours_of_system("dark");
        self.browser.painted();
        self.picture(&format!("{view}-dark.png"));
        self.colours_of_system("light");
        self.phone();
        self.browser.script(&format!("document.querySelector({part:?}).scrollIntoView()"));
        self.browser.painted();
        self.picture(&format!("{view}-phone.png"));
        self.desktop();
        self.browser.painted();
    }

    /// The colours that the system prefers: `light` or `dark`.
    pub(crate) fn colours_of_system(&self, scheme: &str) {
        self.browser.devtools(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
    }

    /// Shows the page as a phone does.
    pub(crate) fn phone(&self) {
        self.browser.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true }),
        );
    }

    /// Shows the page as wide as the window again.
    pub(crate) fn desktop(&self) {
        self.browser.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
    }

    /// Milliseconds from the request of the page until its first contents were painted.
    pub(crate) fn first_paint_ms(&self) -> f64 {
        const PAINT: &str = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
        self.browser.wait(PAINT);
        self.browser.script(&format!("return {PAINT}")).as_f64().expect("a time")
    }
}

/// Path of the binary under test.
pub(crate) const TSDB: &str = env!("CARGO_BIN_EXE_tsdb");

type Check = fn(&Bench);

/// Every check, in its order: the first ones need an empty store.
const CHECKS: &[(&str, Check)] = &[
    ("an empty store shows how to send points, and draws the first ones", graph_checks::empty),
    ("the metrics are listed before a query, by any part of a name", graph_checks::listed),
    ("a query is typed with completions and drawn", graph_checks::typed),
    ("dragging zooms, with Shift it pans, back goes back", graph_checks::zoomed),
    ("a link reproduces the view, also one of OpenTSDB's page", graph_checks::linked),
    ("expressions and functions are drawn beside the query", graph_checks::expressions),
    ("errors are shown with message and details", graph_checks::failed),
    ("a query is cancelled", graph_checks::cancelled),
    ("names that are markup are shown as text", graph_checks::hostile),
    ("PNG, CSV and JSON are exported", graph_checks::exported),
    ("an annotation is written and shown", graph_checks::annotated),
    ("filters of every type", query_checks::filters),
    ("value filters", query_checks::values),
    ("rates, counters and resets", query_checks::rates),
    ("percentiles and buckets of histograms", query_checks::histograms),
    ("rollups are used, or not", query_checks::rollups),
    ("styles, a second axis, logarithms, labels and ranges of axes", query_checks::axes),
    ("gaps are gaps", query_checks::gaps),
    ("the legend is sorted", query_checks::legend_is_sorted),
    ("times are relative or absolute, in a zone", query_checks::times),
    ("the chart is refreshed", query_checks::refreshed),
    ("several sub queries with options of all kinds", query_checks::explained),
    ("annotations are changed and deleted", touch_checks::annotations_change),
    ("fingers pinch, pan and tap", touch_checks::touched),
    ("everything is done with keys alone", graph_checks::keys_only),
    ("the cost and the plan of a query are shown", graph_checks::cost),
    ("many points are drawn", graph_checks::many_points),
    ("series are stacked, and a second axis is drawn", view_checks::drawn),
    ("a phone shows everything", view_checks::phone),
    ("colours follow the system and the switch", view_checks::colours),
    ("overview", view_checks::overview),
    ("queries, one of them cancelled", view_checks::queries),
    ("storage", view_checks::storage),
    ("storage on HBase, with its servers", view_checks::storage_on_hbase),
    ("the nodes of a cluster, one of them killed", cluster_checks::nodes),
    ("cardinality", view_checks::cardinality),
    ("configuration", view_checks::config),
    ("log", view_checks::log),
    ("a link shows the same to a colleague in another zone", link_checks::same_in_another_zone),
    ("copied links are fixed or live", link_checks::fixed_or_live),
    ("old links keep their instants", link_checks::old_links),
    ("Ctrl+Enter takes the text of the focused field", link_checks::focused_text_is_taken),
    (
        "text that is being entered survives zooming and other views",
        link_checks::entered_text_survives,
    ),
    ("links are copied over plain HTTP", link_checks::copied_over_plain_http),
    ("back, forward and a second tab show the same", link_checks::history),
    ("errors of permission are shown in every view", link_checks::refused),
    ("all views have one zone and name it", zone_checks::one_zone),
    ("files are named after metric, range and zone", zone_checks::file_names),
    ("fields are as wide as their times", zone_checks::wide_fields),
    ("a phone shows the chart first", zone_checks::chart_first),
    ("days without series are gaps", zone_checks::cardinality_gaps),
];

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    // `cargo test` gives no argument, or a filter.
    if words.next().as_deref() != Some("run") {
        println!("page: left out; tests/page.sh runs it");
        return ExitCode::SUCCESS;
    }
    let mut only = None;
    let mut arguments = Arguments::new(words);
    while let Some(option) = arguments.next_option() {
        match option.as_str() {
            "--only" => only = Some(arguments.text()),
            _ => arguments.unknown(),
        }
    }
    let (Some(driver), Some(chromium)) = (find("chromedriver"), find("chromium")) else {
        println!("page: skipped, there is no chromium with its chromedriver");
        return ExitCode::SUCCESS;
    };
    let dir = tempfile::tempdir().expect("temporary directory");
    let bench = start(dir.path(), &driver, &chromium);
    if only.is_some() {
        data::put_installation(bench.daemon.address());
        data::put_many(bench.daemon.address());
    }
    let mut passed = 0;
    for (name, check) in CHECKS {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let began = Instant::now();
        println!("page: {name}");
        // A browser on a busy machine now and then does not load what it was asked for.
        if panic::catch_unwind(AssertUnwindSafe(|| check(&bench))).is_err() {
            println!("page:   failed, and run once more");
            check(&bench);
        }
        println!("page:   done in {:.1} s", began.elapsed().as_secs_f64());
        passed += 1;
    }
    console::check(&bench);
    println!("page: {passed} checks passed");
    drop(bench.browser);
    assert!(bench.daemon.terminate().success());
    ExitCode::SUCCESS
}

/// A program on the path.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn start(dir: &Path, driver: &Path, chromium: &Path) -> Bench {
    let config = dir.join("opentsdb.conf");
    let special = data::SPECIAL_CHARACTERS;
    let settings = data::SETTINGS.iter().map(|(key, value)| format!("{key} = {value}\n"));
    let first = format!("tsd.core.tag.allow_specialchars = {special}\n");
    fs::write(&config, iter::once(first).chain(settings).collect::<String>())
        .expect("write the configuration");
    let daemon = DaemonBuilder::new(TSDB, &dir.join("data"))
        .args(&["--config", config.to_str().expect("a path")])
        .start();
    let downloads = dir.join("downloads");
    fs::create_dir(&downloads).expect("create a directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pictures = match env::var_os("UPDATE_DOCS") {
        Some(_) => root.join("docs/images"),
        None => root.join("target/page"),
    };
    fs::create_dir_all(&pictures).expect("create a directory");
    let browser = Browser::start(driver, chromium, &dir.join("profile"), None);
    browser.devtools(
        "Browser.setDownloadBehavior",
        &json!({ "behavior": "allow", "downloadPath": downloads }),
    );
    println!("page: daemon {}, {}", daemon.address(), version(chromium));
    let bench = Bench {
        browser,
        daemon,
        others: RefCell::default(),
        downloads,
        pictures,
        driver: driver.to_owned(),
        chromium: chromium.to_owned(),
    };
    // Pictures do not depend on the colours of the machine.
    bench.colours_of_system("light");
    bench
}

fn version(chromium: &Path) -> String {
    let output = std::process::Command::new(chromium).arg("--version").output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
