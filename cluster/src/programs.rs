//! Java programs that use a cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    cluster::Cluster,
    error::ClusterError,
    java,
    process::{Process, Program},
};

/// Between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(5);

/// A Java program that ran well.
#[derive(Clone, Debug)]
pub struct JavaRun {
    /// What it printed.
    pub stdout: String,
    /// User and system time of its process, JVM and all.
    pub cpu: Duration,
    /// From its start to its end.
    pub wall: Duration,
}

/// Compiles a Java file against HBase's jars into the cluster's directory, and runs the class that the
/// file is named by with HBase's client set up for this cluster (`hbase-site.xml` is on its class
/// path). It is killed when the future is dropped.
///
/// # Errors
///
/// When there is no compiler, the file does not compile, or the program fails.
pub async fn run_java(
    cluster: &Cluster,
    source: &Path,
    args: &[&str],
) -> Result<JavaRun, ClusterError> {
    let classes = cluster.directory().join("classes");
    let class = compile(cluster, source, &classes).await?;
    let (log, output) =
        (classes.join(format!("{class}.log")), classes.join(format!("{class}.out")));
    // Its log holds this run alone.
    let _ = fs::remove_file(&log);
    let mut process = cluster.start_java(&class, args, (&log, &output))?;
    let start = Instant::now();
    while process.is_alive() {
        sleep(LOOK).await;
    }
    let wall = start.elapsed();
    // Until it is reaped its times can be read.
    let cpu = process.identity().cpu_time().unwrap_or_default();
    if process.reap() != Some(true) {
        return Err(ClusterError::Java { what: class, output: crate::process::tail(&log) });
    }
    let stdout = fs::read(&output).map_err(ClusterError::file("read", output))?;
    Ok(JavaRun { stdout: String::from_utf8_lossy(&stdout).into_owned(), cpu, wall })
}

/// Compiles a file; returns the name of its class.
async fn compile(cluster: &Cluster, source: &Path, classes: &Path) -> Result<String, ClusterError> {
    let java = cluster.java_command();
    let javac =
        java::compiler(java).ok_or_else(|| ClusterError::NoCompiler { java: java.into() })?;
    let class_path = cluster.class_path();
    let (file, classes) = (source.to_path_buf(), classes.to_path_buf());
    let compiled = tokio::task::spawn_blocking(move || {
        std::process::Command::new(javac)
            .args(["-nowarn", "-d"])
            .arg(classes)
            .arg(file)
            .env("CLASSPATH", class_path)
            .stdin(Stdio::null())
            .output()
    });
    let failed = |source| ClusterError::Spawn { what: "javac".into(), source };
    let compiled = compiled.await.map_err(|error| failed(std::io::Error::other(error)))?;
    let compiled = compiled.map_err(failed)?;
    if !compiled.status.success() {
        return Err(ClusterError::Java {
            what: format!("compilation of {}", source.display()),
            output: String::from_utf8_lossy(&compiled.stderr).into_owned(),
        });
    }
    let class = PathBuf::from(source).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(class.unwrap_or_default())
}

impl Cluster {
    /// Starts a class that was compiled; its output goes to a file of its own.
    fn start_java(
        &self,
        class: &str,
        args: &[&str],
        (log, output): (&Path, &Path),
    ) -> Result<Process, ClusterError> {
        let mut arguments = self.jvm_of_client();
        arguments.push(class.to_owned());
        arguments.extend(args.iter().map(|&arg| arg.to_owned()));
        let program = Program {
            command: self.java_command(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: vec![("CLASSPATH", self.class_path_of_client())],
            directory: self.directory(),
            log,
            output: Some(output),
        };
        self.start_program(class, &program)
    }
}
