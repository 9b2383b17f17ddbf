//! HBase's own client in a virtual machine that stays up over all rounds.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{process, site::Site};

/// Flags that HBase's client wants of Java 17.
const FLAGS: [&str; 7] = [
    "-Xmx2g",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
];

/// The compiled programs of `cluster/java`.
pub(crate) struct Programs {
    classes: PathBuf,
}

/// One of them, waiting for orders.
pub(crate) struct Rival {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What it said to an order.
pub(crate) struct Said {
    pub(crate) seconds: f64,
    /// Processor time of the virtual machine meanwhile, its compiler and collector included.
    pub(crate) cpu: f64,
    /// Words behind the seconds.
    pub(crate) rest: Vec<u64>,
}

impl Programs {
    /// Compiles them into the directory.
    pub(crate) fn compile(site: &Site, directory: &Path) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/java");
        let files = fs::read_dir(&sources).expect("cluster/java");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|file| file.extension().is_some_and(|ext| ext == "java"));
        let classes = directory.join("classes");
        let done = Command::new("javac")
            .args(["-nowarn", "-proc:none", "-d"])
            .arg(&classes)
            .args(files)
            .env("CLASSPATH", site.cluster().class_path())
            .output()
            .expect("javac");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self { classes }
    }

    /// Starts a program.
    pub(crate) fn start(&self, site: &Site, program: &str) -> Rival {
        let class_path = format!("{}:{}", self.classes.display(), site.cluster().class_path());
        let log = File::create(self.classes.join(format!("{program}.log"))).expect("a log");
        let mut process = Command::new("java")
            .args(FLAGS)
            .args([program, &site.cluster().quorum()])
            .env("CLASSPATH", class_path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("java");
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Rival { process, orders, answers }
    }
}

impl Rival {
    /// Gives an order and waits until it is done.
    pub(crate) fn order(&mut self, order: &str) -> Said {
        let before = process::cpu_seconds(self.process.id());
        writeln!(self.orders, "{order}").expect("the program runs");
        let mut line = String::new();
        // Libraries may greet on the same stream.
        let words = loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("a line");
            assert!(read > 0, "the program ended at: {order}");
            if let Some(words) = line.strip_prefix("done ") {
                break words;
            }
        };
        let cpu = process::cpu_seconds(self.process.id()) - before;
        let mut words = words.split_whitespace();
        let seconds = words.next().and_then(|word| word.parse().ok()).expect("seconds");
        let rest = words.map(|word| word.parse().expect("a number")).collect();
        Said { seconds, cpu, rest }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
