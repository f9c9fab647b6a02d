"""The part of `Bench` that is about sessions, budgets and what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from wtb.config.keeping.retention_policy import Policy
from wtb.core.arguments.checking import as_path
from wtb.core.documents.access.audit import AuditedCall, AuditHead, AuditVerification, PrunedAudit
from wtb.core.documents.administration import (
    AccessDocument,
    ImportedDocument,
    NewTokenDocument,
    OneSessionDocument,
    ProjectDocument,
    SessionDocument,
    TeamDocument,
    TokenDocument,
    UserDocument,
)
from wtb.core.documents.costs import BudgetDocument
from wtb.core.documents.storage.backups import BackupDocument, RestoredDocument
from wtb.operations.administration import access as access_operations
from wtb.operations.administration import audit as audit_operations
from wtb.operations.administration import budgets as budget_operations
from wtb.operations.administration import projects as project_operations
from wtb.operations.administration import sessions as session_operations
from wtb.operations.administration import tokens as token_operations
from wtb.operations.administration import users as user_operations
from wtb.operations.administration.budgets import Budgets
from wtb.operations.administration.sessions import DeletedSession
from wtb.operations.archive.importer import MAX_BYTES, import_execution
from wtb.operations.backup.backup import backup
from wtb.operations.backup.restore import restore
from wtb.operations.context import Context
from wtb.operations.handles.documentation import documented_by
from wtb.operations.housekeeping.erase import Erased, erase, preview_erase
from wtb.operations.housekeeping.garbage_collection import Collected, collect
from wtb.store.limits.sessions import Quota


class Administration:
    """Projects, sessions, budgets, garbage collections and archives."""

    _context: Context

    @documented_by(project_operations.create_project)
    def create_project(self, name: str) -> ProjectDocument:
        """Make a project, which sessions, sweeps and tokens belong to."""
        return project_operations.create_project(self._context, name)

    @documented_by(project_operations.change_project)
    def change_project(
        self, name: str, *, sweeps: str | None = None, keep: int | None = None, clear: bool = False
    ) -> ProjectDocument:
        """Say how long finished sweeps of a project are kept, in place of what the policy says."""
        return project_operations.change_project(self._context, name, sweeps=sweeps, keep=keep, clear=clear)

    def projects(self) -> list[ProjectDocument]:
        """List projects with how many sessions and sweeps they have.

        Returns:
            A document for each, by name.
        """
        return project_operations.list_projects(self._context)

    @documented_by(project_operations.describe_project)
    def project(self, name: str) -> ProjectDocument:
        """Show a project: how many sessions and sweeps it has."""
        return project_operations.describe_project(self._context, name)

    @documented_by(session_operations.create_session)
    def create_session(
        self,
        name: str,
        *,
        disk: int | None = None,
        node_runs: int | None = None,
        usd: float | None = None,
        tokens: int | None = None,
        memory: int | None = None,
        owner: str | None = None,
        metadata: Mapping[str, str] | None = None,
        project: str | None = None,
    ) -> OneSessionDocument:
        """Make a session.

        Args:
            disk: Bytes that its files may take; None for no limit, as of the others.
            node_runs: Node runs at a time.
            usd: US dollars that it may spend in all.
            tokens: Tokens that it may spend in all.
            memory: Bytes of memory that its node processes may use together.
            owner: Who is responsible for it, such as a user, a team or an address.
            metadata: What else is to be kept with it: texts by name.
            project: The project that it belongs to; by default `default`.
        """
        quota = Quota(disk=disk, node_runs=node_runs, usd=usd, tokens=tokens, memory=memory)
        return session_operations.create_session(
            self._context, name, quota, owner=owner, metadata=metadata, project=project
        )

    @documented_by(session_operations.change_session)
    def change_session(
        self,
        name: str,
        *,
        owner: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
        **limits: float | None,
    ) -> Quota:
        """Change a session's quota, owner and metadata; what is not named stays.

        Args:
            owner: Another owner; empty for none.
            metadata: Texts by name; None removes one.
            **limits: By their name; None lifts one.
        """
        return session_operations.change_session(self._context, name, limits, owner=owner, metadata=metadata)

    @documented_by(session_operations.rename_session)
    def rename_session(self, name: str, to: str) -> OneSessionDocument:
        """Call a session by another name, also while its sweeps run."""
        return session_operations.rename_session(self._context, name, to)

    def sessions(self, *, archived: bool = False) -> list[SessionDocument]:
        """List sessions with what they use and what they may use.

        Args:
            archived: Those that are archived, too.

        Returns:
            A document for each, by name.
        """
        return session_operations.list_sessions(self._context, archived=archived)

    @documented_by(session_operations.describe_session)
    def session(self, name: str) -> OneSessionDocument:
        """Return a session: its sweeps by status, what it uses, and who holds its slots.

        Args:
            name: Its name.

        Returns:
            Its document.
        """
        return session_operations.describe_session(self._context, name)

    @documented_by(session_operations.archive_session)
    def archive_session(self, name: str, *, undo: bool = False) -> bool:
        """Let a session take no new sweeps; those that it has can be read and resumed."""
        return session_operations.archive_session(self._context, name, undo=undo)

    @documented_by(session_operations.delete_session)
    def delete_session(self, name: str) -> DeletedSession:
        """Delete a session with its sweeps and their files, for good."""
        return session_operations.delete_session(self._context, name)

    @documented_by(session_operations.preview_delete_session)
    def preview_delete_session(self, name: str) -> DeletedSession:
        """Return what `delete_session` would remove, and remove nothing.

        Args:
            name: The session's name.

        Returns:
            A `DeletedSession` with what `delete_session` would give.
        """
        return session_operations.preview_delete_session(self._context, name)

    @documented_by(budget_operations.set_budgets)
    def set_budgets(
        self,
        limits: Mapping[str, float | None],
        *,
        project: str | None = None,
        session: str | None = None,
        token: str | None = None,
    ) -> Budgets:
        """Give a project, session or token budgets; those that are not named stay."""
        return budget_operations.set_budgets(self._context, limits, project=project, session=session, token=token)

    @documented_by(budget_operations.clear_budgets)
    def clear_budgets(
        self, *, project: str | None = None, session: str | None = None, token: str | None = None
    ) -> Budgets:
        """Lift all budgets of a project, session or token. What was spent stays known."""
        return budget_operations.clear_budgets(self._context, project=project, session=session, token=token)

    @documented_by(budget_operations.list_budgets)
    def budgets(self, sweep: str | None = None) -> list[BudgetDocument]:
        """List budgets with what is spent of each, and what attempts that are under way have reserved."""
        return budget_operations.list_budgets(self._context, sweep)

    @documented_by(user_operations.create_user)
    def create_user(self, name: str) -> UserDocument:
        """Make a user, who may be given roles."""
        return user_operations.create_user(self._context, name)

    def users(self) -> list[UserDocument]:
        """List users with their teams.

        Returns:
            A document for each, by name.
        """
        return user_operations.list_users(self._context)

    @documented_by(user_operations.remove_user)
    def remove_user(self, name: str) -> UserDocument:
        """Remove a user with their roles and tokens; what they did stays under their name."""
        return user_operations.remove_user(self._context, name)

    @documented_by(user_operations.create_team)
    def create_team(self, name: str) -> TeamDocument:
        """Make a team, whose members have its roles."""
        return user_operations.create_team(self._context, name)

    def teams(self) -> list[TeamDocument]:
        """List teams with their members.

        Returns:
            A document for each, by name.
        """
        return user_operations.list_teams(self._context)

    @documented_by(user_operations.change_team)
    def change_team(self, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> TeamDocument:
        """Add users to a team, and remove others."""
        return user_operations.change_team(self._context, name, add=add, remove=remove)

    @documented_by(access_operations.grant_access)
    def grant_access(
        self, role: str, *, user: str | None = None, team: str | None = None, project: str | None = None
    ) -> AccessDocument:
        """Give a user or a team a role in a project, in place of the one that they have there."""
        return access_operations.grant_access(self._context, role, user=user, team=team, project=project)

    def access(self) -> list[AccessDocument]:
        """List who has which role.

        Returns:
            A document for each role, by project; those of all projects first.
        """
        return access_operations.list_access(self._context)

    @documented_by(access_operations.revoke_access)
    def revoke_access(
        self, *, user: str | None = None, team: str | None = None, project: str | None = None
    ) -> AccessDocument:
        """Take back a role in a project."""
        return access_operations.revoke_access(self._context, user=user, team=team, project=project)

    @documented_by(token_operations.create_token)
    def create_token(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("read",),
        project: str | None = None,
        user: str | None = None,
        budget: Mapping[str, float | None] | None = None,
        expires_s: float | None = None,
    ) -> NewTokenDocument:
        """Make a token, by which its holder may ask a server. The database keeps a digest of it."""
        return token_operations.create_token(
            self._context, name, scopes=scopes, project=project, user=user, budget=budget, expires_s=expires_s
        )

    @documented_by(token_operations.list_tokens)
    def tokens(self) -> list[TokenDocument]:
        """List tokens with what their holders may do, and when they were used.

        Returns:
            A document for each, the newest first.
        """
        return token_operations.list_tokens(self._context)

    @documented_by(token_operations.revoke_token)
    def revoke_token(self, name: str) -> TokenDocument:
        """Let a token be of no more use; what it has open ends within a second.

        Args:
            name: Its name.

        Returns:
            Its document.
        """
        return token_operations.revoke_token(self._context, name)

    def audit(
        self,
        *,
        by: str | None = None,
        command: str | None = None,
        token: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditedCall]:
        """List who changed what, the newest first.

        Args:
            by: Only what somebody of this name did.
            command: Only this operation, by the words of its command, or `sign-in` and `sign-out`.
            token: Only what was done by the token of this name.
            since: Only what was done then or later.
            before: Only what has a smaller number: the last one seen, to read on.
            limit: How many at most.

        Returns:
            A document for each.
        """
        return audit_operations.list_audit(
            self._context, by=by, command=command, token=token, since=since, before=before, limit=limit
        )

    @documented_by(audit_operations.verify_audit)
    def verify_audit(self, heads: Sequence[str] = ()) -> AuditVerification:
        """Check that no row of the audit log was changed, removed, moved or added in between."""
        return audit_operations.verify_audit(self._context, heads)

    def audit_head(self) -> AuditHead:
        """Return the head of the audit log, to be kept where whoever could change the log cannot change it.

        Returns:
            Number and hash of the last row.
        """
        return audit_operations.audit_head(self._context)

    @documented_by(audit_operations.prune_audit)
    def prune_audit(self, before: datetime) -> PrunedAudit:
        """Remove the rows of the audit log that are older than a time; the log says so from then on, and which."""
        return audit_operations.prune_audit(self._context, before)

    @documented_by(collect)
    def collect(self, policy: Policy | None = None, *, dry_run: bool = False) -> Collected:
        """Remove what nothing reaches, and what is older than a policy allows."""
        return collect(self._context, policy, dry_run=dry_run)

    @documented_by(import_execution)
    def import_execution(
        self,
        file: str | Path,
        *,
        session: str | None = None,
        name: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> ImportedDocument:
        """Read an execution from a file that `ExecutionHandle.export` or `wtb export` wrote."""
        return import_execution(self._context, as_path("file", file), session=session, name=name, max_bytes=max_bytes)

    @documented_by(backup)
    def backup(self, folder: str | Path) -> BackupDocument:
        """Copy the database with its files to a new folder, whole or not at all, also while sweeps run."""
        return backup(self._context, as_path("folder", folder))

    @documented_by(restore)
    def restore(self, folder: str | Path) -> RestoredDocument:
        """Load a backup into this database, which has to be empty, with its files."""
        return restore(self._context, as_path("folder", folder))

    @documented_by(erase)
    def erase(
        self, case: str, *, sweep: str | None = None, project: str | None = None, reason: str | None = None
    ) -> Erased:
        """Erase a case: its input, all that ran for it, what that left, and its figures, for good."""
        return erase(self._context, case, sweep=sweep, project=project, reason=reason)

    @documented_by(preview_erase)
    def preview_erase(self, case: str, *, sweep: str | None = None, project: str | None = None) -> Erased:
        """Return what `erase` would remove, and remove nothing."""
        return preview_erase(self._context, case, sweep=sweep, project=project)
