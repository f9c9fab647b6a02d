"""Operations that act on no single sweep or execution, as methods of benches."""

from __future__ import annotations

from wtb.operations.administration.access import grant_access, list_access, revoke_access
from wtb.operations.administration.audit import audit_head, list_audit, prune_audit, verify_audit
from wtb.operations.administration.budgets import clear_budgets, list_budgets, set_budgets
from wtb.operations.administration.projects import change_project, create_project, describe_project, list_projects
from wtb.operations.administration.sessions import (
    archive_session,
    delete_session,
    describe_session,
    list_sessions,
    preview_delete_session,
    rename_session,
)
from wtb.operations.administration.tokens import create_token, list_tokens, revoke_token
from wtb.operations.administration.users import (
    change_team,
    create_team,
    create_user,
    list_teams,
    list_users,
    remove_team,
    remove_user,
)
from wtb.operations.archive.importer import import_execution
from wtb.operations.backup.backup import backup
from wtb.operations.backup.restore import restore
from wtb.operations.control.answers import preview_answers
from wtb.operations.drafting.evaluator_preview import preview_evaluator
from wtb.operations.drafting.reading_cases import read_case_file
from wtb.operations.handles.methods import method
from wtb.operations.handles.records import run_records, sweep_records
from wtb.operations.housekeeping.erase import erase, preview_erase
from wtb.operations.housekeeping.garbage_collection import collect
from wtb.operations.inspection.history import show_checkpoint
from wtb.operations.inspection.sweeps import list_runs, list_sweeps
from wtb.operations.inspection.watching import watch
from wtb.operations.inspection.workflows import list_published, show_published
from wtb.operations.results.baselines import list_baselines, remove_baseline, show_baseline
from wtb.operations.results.comparing import compare
from wtb.operations.results.costs import costs
from wtb.operations.schedules.history import check_schedule, history
from wtb.operations.schedules.schedules import (
    add_schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_due,
    run_now,
    show_schedule,
)


class BenchMethods:
    """What a bench has besides the objects that it finds and makes."""

    sweeps = method(list_sweeps, sweep_records)
    executions = method(list_runs, run_records)
    checkpoint = method(show_checkpoint)
    preview_answers = method(preview_answers)
    watch = method(watch)

    # Workflows that workers publish
    published = method(list_published)
    published_workflow = method(show_published)
    read_case_file = method(read_case_file)
    preview_evaluator = method(preview_evaluator)

    # Results
    compare = method(compare)
    costs = method(costs)
    baselines = method(list_baselines)
    baseline = method(show_baseline)
    remove_baseline = method(remove_baseline)

    # Schedules
    add_schedule = method(add_schedule)
    schedules = method(list_schedules)
    schedule = method(show_schedule)
    pause_schedule = method(pause_schedule)
    resume_schedule = method(resume_schedule)
    remove_schedule = method(remove_schedule)
    run_schedule = method(run_now)
    run_due_schedules = method(run_due)
    schedule_history = method(history)
    check_schedule = method(check_schedule)

    # Projects, sessions and budgets
    create_project = method(create_project)
    change_project = method(change_project)
    projects = method(list_projects)
    project = method(describe_project)
    rename_session = method(rename_session)
    sessions = method(list_sessions)
    session = method(describe_session)
    archive_session = method(archive_session)
    delete_session = method(delete_session)
    preview_delete_session = method(preview_delete_session)
    set_budgets = method(set_budgets)
    clear_budgets = method(clear_budgets)
    budgets = method(list_budgets)

    # Access
    create_user = method(create_user)
    users = method(list_users)
    remove_user = method(remove_user)
    create_team = method(create_team)
    teams = method(list_teams)
    change_team = method(change_team)
    remove_team = method(remove_team)
    grant_access = method(grant_access)
    access = method(list_access)
    revoke_access = method(revoke_access)
    create_token = method(create_token)
    tokens = method(list_tokens)
    revoke_token = method(revoke_token)
    audit = method(list_audit)
    verify_audit = method(verify_audit)
    audit_head = method(audit_head)
    prune_audit = method(prune_audit)

    # What is kept
    collect = method(collect)
    import_execution = method(import_execution)
    backup = method(backup)
    restore = method(restore)
    erase = method(erase)
    preview_erase = method(preview_erase)
