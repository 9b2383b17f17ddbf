//! Time zone lookup by Java's rules.

use jiff::tz::TimeZone;

/// Java's short ids that are not in the zone database.
const SHORT_IDS: &[(&str, &str)] = &[
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
];

/// The time zone of that name. Names are case-sensitive, as in Java.
#[must_use]
pub fn find_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    let id = SHORT_IDS.iter().find(|(short, _)| *short == name).map_or(name, |(_, id)| id);
    let zone = TimeZone::get(id).ok()?;
    (zone.iana_name() == Some(id)).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        assert!(find_zone("Asia/Kabul").is_some());
        assert!(find_zone("EST").is_some());
        assert!(find_zone("UTC").is_some());
        assert!(find_zone("PST").is_some());
        assert!(find_zone("asia/kabul").is_none());
        assert!(find_zone("Nowhere/Land").is_none());
        assert!(find_zone("").is_none());
    }
}
