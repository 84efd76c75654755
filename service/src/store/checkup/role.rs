//! Facts about the role of this connection: which rights it lacks for a kind of process, and which
//! powers it has beyond those.

use crate::store::ServiceStore;
use wakeq::StoreError;
use wakeq::database::RoleKind;

/// A right that this role lacks on an object of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    /// `schema`, `table`, `sequence` or `function`.
    pub(crate) kind: String,
    /// The object's name, qualified.
    pub(crate) object: String,
    /// As in a `grant` statement.
    pub(crate) right: String,
}

/// The powers of a role over the schema beyond its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RolePowers {
    pub(crate) is_superuser: bool,
    /// It is, or may become, the owner of the schema.
    pub(crate) owns_schema: bool,
    /// It can create roles, or become a role that can: up to Postgres 15 it could make itself the
    /// owner.
    pub(crate) makes_roles: bool,
    /// Every role may execute some function of the schema.
    pub(crate) public_functions: bool,
}

impl ServiceStore {
    /// The rights that processes of this kind need and this role lacks.
    pub(crate) async fn missing_rights(&self, kind: RoleKind) -> Result<Vec<Right>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select has_schema_privilege(oid, 'usage') as "usage!" from pg_catalog.pg_namespace where nspname = 'wakeq'"#
        );
        if self.session().await?.optional("look at the rights", query).await? != Some(true) {
            return Ok(vec![Right { kind: "schema".into(), object: "wakeq".into(), right: "usage".into() }]);
        }
        let query = sqlx::query_as!(
            Right,
            r#"select object_kind as "kind!", object as "object!", needed as "right!"
                 from wakeq.needed_rights($1)
                where not case object_kind
                          when 'table' then has_table_privilege(object, needed)
                          when 'columns' then not exists (
                              select from pg_catalog.pg_attribute a
                               where a.attrelid = object::regclass and needed ~ ('[( ]' || a.attname || '[,)]')
                                 and not has_column_privilege(object, a.attname::text, 'insert'))
                          when 'sequence' then has_sequence_privilege(object, needed)
                          when 'function' then has_function_privilege(object, needed)
                          else has_schema_privilege(object, needed) end
                order by 1, 2, 3 limit 1000"#,
            kind.as_str()
        );
        self.session().await?.all("look at the rights", query).await
    }

    /// The powers of this role beyond its work.
    pub(crate) async fn role_powers(&self) -> Result<RolePowers, StoreError> {
        let query = sqlx::query_as!(
            RolePowers,
            r#"select bool_or(r.rolsuper) as "is_superuser!",
                      coalesce(bool_or(r.oid = (select nspowner from pg_catalog.pg_namespace where nspname = 'wakeq')),
                               false) as "owns_schema!",
                      bool_or(r.rolcreaterole) as "makes_roles!",
                      exists (select from pg_catalog.pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                               where a.grantee = 0 and p.pronamespace = (select oid from pg_catalog.pg_namespace
                                                                          where nspname = 'wakeq')) as "public_functions!"
                 from pg_catalog.pg_roles r where pg_has_role(r.oid, 'member')"#
        );
        self.session().await?.one("look at the role", query).await
    }
}
