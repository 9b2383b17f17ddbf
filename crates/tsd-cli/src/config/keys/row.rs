//! A row of the table of keys.

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `true`, `1` and `yes` are true, `false`, `0`, `no` and the empty text are false, in any case.
    /// OpenTSDB reads any other text as false; here it is an error.
    Bool,
    /// A [`Self::Bool`] that has its effect only as this exact text, as in OpenTSDB: `true` enables
    /// the API and the pages, `false` enables `diediedie`.
    Exactly(&'static str),
    /// A whole number in a range, inclusive.
    Int {
        /// Smallest value allowed.
        min: i64,
        /// Largest value allowed.
        max: i64,
    },
    /// Bytes in a range, inclusive: a whole number, alone or with a unit such as `MiB`.
    Size {
        /// Smallest value allowed.
        min: i64,
        /// Largest value allowed.
        max: i64,
    },
    /// Seconds in a range, inclusive; decimals are allowed.
    Seconds {
        /// Smallest value allowed.
        min: f64,
        /// Largest value allowed.
        max: f64,
    },
    /// Any text.
    Text,
    /// One of a few words, lower case.
    OneOf(&'static [&'static str]),
}

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or a value that is not a number.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

impl Unit {
    /// The unit in front of a range, such as `bytes, `.
    const fn prefix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "bytes, ",
            Self::Seconds => "seconds, ",
            Self::Milliseconds => "milliseconds, ",
        }
    }
}

/// The stores on which a key has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every store.
    All,
    /// The embedded store.
    Embedded,
    /// HBase.
    HBase,
    /// Stores with files on this host: the embedded store, and the logs in front of HBase.
    Persistent,
    /// Stores whose rows the engine compacts. The merges of the embedded store compact its rows.
    RowCompactor,
    /// HBase with `tsd.storage.ack = cluster`.
    Cluster,
}

impl Scope {
    /// The stores in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Embedded => "embedded",
            Self::HBase => "HBase",
            Self::Persistent => "embedded, HBase",
            Self::RowCompactor => "HBase, memory",
            Self::Cluster => "cluster",
        }
    }
}

/// Whether a key has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    /// It is applied on these stores.
    Applied(Scope),
    /// OpenTSDB has the key. It is accepted and shown by `/api/config`, without effect for this reason.
    None(&'static str),
}

/// A configuration key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key, verbatim.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ValueKind,
    /// Unit of its value.
    pub unit: Unit,
    /// Default; `None` omits it from `/api/config` unless set.
    pub default: Option<&'static str>,
    /// Whether it has an effect.
    pub effect: KeyEffect,
    /// What it sets, in one line.
    pub meaning: &'static str,
}

impl Key {
    /// The environment variable that sets it: upper case, `.` replaced by `_`.
    #[must_use]
    pub fn environment_variable(&self) -> String {
        self.name.to_ascii_uppercase().replace('.', "_")
    }

    /// True if the key has an effect on some store.
    #[must_use]
    pub const fn is_applied(&self) -> bool {
        matches!(self.effect, KeyEffect::Applied(_))
    }

    /// The allowed values with their unit, in words.
    #[must_use]
    pub fn values(&self) -> String {
        match self.kind {
            ValueKind::Bool => "true or false".to_owned(),
            ValueKind::Exactly(word) => format!("the exact text {word}, or another"),
            ValueKind::Int { min, max: i64::MAX } | ValueKind::Size { min, max: i64::MAX } => {
                format!("{}{min} or more", self.unit.prefix())
            }
            ValueKind::Int { min, max } | ValueKind::Size { min, max } => {
                format!("{}{min} to {max}", self.unit.prefix())
            }
            ValueKind::Seconds { min, max } => format!("{}{min} to {max}", self.unit.prefix()),
            ValueKind::Text => "text".to_owned(),
            ValueKind::OneOf(words) => words.join(", "),
        }
    }
}
