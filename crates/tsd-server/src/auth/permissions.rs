//! Permissions and roles, under OpenTSDB's names.

/// A permission of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Put points by telnet.
    TelnetPut,
    /// Put points and annotations by HTTP.
    HttpPut,
    /// Read points, annotations and names by HTTP.
    HttpQuery,
    /// Create tag keys.
    CreateTagk,
    /// Create tag values.
    CreateTagv,
    /// Create metrics.
    CreateMetric,
    /// Administer the daemon. Only the role ADMINISTRATOR has it; OpenTSDB has no such permission.
    Administer,
}

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions(u8);

/// A word is neither a role nor a permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a role (ADMINISTRATOR, WRITER, PUTONLY, READER, CREATOR, GUEST) nor a permission \
     (TELNET_PUT, HTTP_PUT, HTTP_QUERY, CREATE_METRIC, CREATE_TAGK, CREATE_TAGV)"
)]
pub struct UnknownPermission(String);

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 7] = [
        Self::TelnetPut,
        Self::HttpPut,
        Self::HttpQuery,
        Self::CreateTagk,
        Self::CreateTagv,
        Self::CreateMetric,
        Self::Administer,
    ];

    /// Returns the name in the file of users and in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TelnetPut => "TELNET_PUT",
            Self::HttpPut => "HTTP_PUT",
            Self::HttpQuery => "HTTP_QUERY",
            Self::CreateTagk => "CREATE_TAGK",
            Self::CreateTagv => "CREATE_TAGV",
            Self::CreateMetric => "CREATE_METRIC",
            Self::Administer => "ADMINISTRATOR",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

const PUTS: u8 = Permission::TelnetPut.bit() | Permission::HttpPut.bit();
const CREATES: u8 =
    Permission::CreateMetric.bit() | Permission::CreateTagk.bit() | Permission::CreateTagv.bit();

/// Roles and permissions by name.
const GRANTS: [(&str, u8); 12] = [
    ("ADMINISTRATOR", PUTS | CREATES | Permission::HttpQuery.bit() | Permission::Administer.bit()),
    ("PUTONLY", PUTS),
    ("WRITER", PUTS | Permission::CreateTagv.bit()),
    ("READER", Permission::HttpQuery.bit()),
    ("CREATOR", CREATES),
    ("GUEST", 0),
    ("TELNET_PUT", Permission::TelnetPut.bit()),
    ("HTTP_PUT", Permission::HttpPut.bit()),
    ("HTTP_QUERY", Permission::HttpQuery.bit()),
    ("CREATE_TAGK", Permission::CreateTagk.bit()),
    ("CREATE_TAGV", Permission::CreateTagv.bit()),
    ("CREATE_METRIC", Permission::CreateMetric.bit()),
];

impl Permissions {
    /// OpenTSDB's six permissions: all except administration.
    pub const ALL_OF_OPENTSDB: Self = Self(PUTS | CREATES | Permission::HttpQuery.bit());

    /// Parses roles and permissions, separated by commas, in any case. The set is their union.
    pub fn parse(list: &str) -> Result<Self, UnknownPermission> {
        let mut bits = 0;
        for word in list.split(',').map(str::trim) {
            let known = GRANTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            let (_, granted) = known.ok_or_else(|| UnknownPermission(word.to_owned()))?;
            bits |= granted;
        }
        Ok(Self(bits))
    }

    /// Returns true if the set has a permission.
    #[must_use]
    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(list: &str, expected: &[Permission]) {
        use Permission::{
            Administer, CreateMetric, CreateTagk, CreateTagv, HttpPut, HttpQuery, TelnetPut,
        };
        let permissions = Permissions::parse(list).unwrap();
        for permission in
            [TelnetPut, HttpPut, HttpQuery, CreateTagk, CreateTagv, CreateMetric, Administer]
        {
            let has = permissions.contains(permission);
            assert_eq!(has, expected.contains(&permission), "{list}: {permission:?}");
        }
    }

    #[test]
    fn roles_have_opentsdbs_permissions() {
        use Permission::{
            Administer, CreateMetric, CreateTagk, CreateTagv, HttpPut, HttpQuery, TelnetPut,
        };
        let all = [TelnetPut, HttpPut, HttpQuery, CreateTagk, CreateTagv, CreateMetric, Administer];
        check("ADMINISTRATOR", &all);
        check("PUTONLY", &[TelnetPut, HttpPut]);
        check("WRITER", &[TelnetPut, HttpPut, CreateTagv]);
        check("reader", &[HttpQuery]);
        check("CREATOR", &[CreateMetric, CreateTagk, CreateTagv]);
        check("GUEST", &[]);
        check("Reader, telnet_put,GUEST", &[HttpQuery, TelnetPut]);
    }

    #[test]
    fn other_words_are_errors() {
        for list in ["", "ADMIN", "READER,", "READER WRITER", "ADMINISTER"] {
            assert!(Permissions::parse(list).is_err(), "{list:?}");
        }
    }
}
