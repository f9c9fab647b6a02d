"""What a server carries out, as methods of clients: those that wait, and those that are awaited."""

from __future__ import annotations

from wtb.hosting.client.methods import async_method, method
from wtb.operations.administration.access import grant_access, list_access, revoke_access
from wtb.operations.administration.budgets import clear_budgets, list_budgets, set_budgets
from wtb.operations.administration.projects import change_project, create_project, describe_project, list_projects
from wtb.operations.administration.sessions import (
    archive_session,
    change_session,
    create_session,
    delete_session,
    describe_session,
    list_sessions,
    preview_delete_session,
)
from wtb.operations.administration.tokens import create_token, list_tokens, revoke_token
from wtb.operations.administration.users import (
    change_team,
    create_team,
    create_user,
    list_teams,
    list_users,
    remove_user,
)
from wtb.operations.archive.exporter import read_archive
from wtb.operations.control.answers import answer, answer_all, preview_answers
from wtb.operations.control.breakpoints import list_breakpoints, set_breakpoints
from wtb.operations.control.forks import fork
from wtb.operations.control.naming import name_checkpoint
from wtb.operations.control.pause_cancel import cancel, pause
from wtb.operations.control.pools import pool
from wtb.operations.control.questions import find_questions
from wtb.operations.control.rollback import rollback, undo_rollback
from wtb.operations.drafting.evaluator_preview import preview_evaluator
from wtb.operations.drafting.reading_cases import read_case_file
from wtb.operations.growth.added_rows import add_row
from wtb.operations.growth.extending import extend, plan_extension
from wtb.operations.growth.stopping import stop_combination
from wtb.operations.housekeeping.delete import delete, preview_delete
from wtb.operations.housekeeping.erase import erase, preview_erase
from wtb.operations.housekeeping.pins import pin, unpin
from wtb.operations.inspection.executions import diff, tree
from wtb.operations.inspection.files import compare_files, list_files, read_file
from wtb.operations.inspection.history import history, show_checkpoint
from wtb.operations.inspection.log import count_events, log
from wtb.operations.inspection.sweeps import cells, list_runs, list_sweeps, show, status
from wtb.operations.inspection.workflows import list_published, show_published
from wtb.operations.outputs.commenting import add_comment, delete_comment, list_comments
from wtb.operations.outputs.side_by_side import outputs, read_value
from wtb.operations.results.baselines import list_baselines, remove_baseline, set_baseline, show_baseline
from wtb.operations.results.comparing import compare, compare_rows
from wtb.operations.results.costs import costs
from wtb.operations.results.judging import check_judge
from wtb.operations.results.labelling import draw_labels, give_label, list_labels
from wtb.operations.results.matrix import matrix, report
from wtb.operations.results.series import series
from wtb.operations.running.continuing import resume, retry
from wtb.operations.running.published import plan_published, start_published, submit_published
from wtb.operations.running.published_scoring import cancel_scoring, score_published, show_scoring
from wtb.operations.schedules.history import check_schedule
from wtb.operations.schedules.history import history as schedule_history
from wtb.operations.schedules.schedules import (
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    show_schedule,
)


class Operations:
    """Operations whose results are waited for. They have the names that they have of `wtb.Bench` and its handles."""

    published = method(list_published)
    published_workflow = method(show_published)
    read_case_file = method(read_case_file)
    preview_evaluator = method(preview_evaluator)
    plan_published = method(plan_published)
    submit_published = method(submit_published)
    start_published = method(start_published)
    sweeps = method(list_sweeps)
    executions = method(list_runs)
    status = method(status)
    show = method(show)
    cells = method(cells)
    outputs = method(outputs)
    read_value = method(read_value)
    log = method(log)
    count_events = method(count_events)
    history = method(history)
    checkpoint = method(show_checkpoint)
    tree = method(tree)
    list_files = method(list_files)
    read_file = method(read_file)
    read_archive = method(read_archive)
    compare_files = method(compare_files)
    diff = method(diff)
    matrix = method(matrix)
    report = method(report)
    compare = method(compare)
    compare_rows = method(compare_rows)
    score_published = method(score_published)
    scoring = method(show_scoring)
    cancel_scoring = method(cancel_scoring)
    draw_labels = method(draw_labels)
    give_label = method(give_label)
    labels = method(list_labels)
    add_comment = method(add_comment)
    delete_comment = method(delete_comment)
    comments = method(list_comments)
    check_judge = method(check_judge)
    series = method(series)
    costs = method(costs)
    baselines = method(list_baselines)
    baseline = method(show_baseline)
    questions = method(find_questions)
    answer = method(answer)
    resume = method(resume)
    retry = method(retry)
    name_checkpoint = method(name_checkpoint)
    rollback = method(rollback)
    undo_rollback = method(undo_rollback)
    pause = method(pause)
    cancel = method(cancel)
    breakpoints = method(list_breakpoints)
    set_breakpoints = method(set_breakpoints)
    schedules = method(list_schedules)
    schedule = method(show_schedule)
    schedule_history = method(schedule_history)
    pause_schedule = method(pause_schedule)
    resume_schedule = method(resume_schedule)
    sessions = method(list_sessions)
    session = method(describe_session)
    budgets = method(list_budgets)
    tokens = method(list_tokens)
    answer_all = method(answer_all)
    preview_answers = method(preview_answers)
    fork = method(fork)
    fork_all_cases = method(add_row)
    extend = method(extend)
    plan_extension = method(plan_extension)
    stop_combination = method(stop_combination)
    pin = method(pin)
    unpin = method(unpin)
    delete = method(delete)
    preview_delete = method(preview_delete)
    erase = method(erase)
    preview_erase = method(preview_erase)
    pool = method(pool)
    set_baseline = method(set_baseline)
    remove_baseline = method(remove_baseline)
    remove_schedule = method(remove_schedule)
    check_schedule = method(check_schedule)
    create_session = method(create_session)
    change_session = method(change_session)
    archive_session = method(archive_session)
    delete_session = method(delete_session)
    preview_delete_session = method(preview_delete_session)
    create_project = method(create_project)
    change_project = method(change_project)
    projects = method(list_projects)
    project = method(describe_project)
    create_user = method(create_user)
    users = method(list_users)
    remove_user = method(remove_user)
    create_team = method(create_team)
    teams = method(list_teams)
    change_team = method(change_team)
    grant_access = method(grant_access)
    access = method(list_access)
    revoke_access = method(revoke_access)
    set_budgets = method(set_budgets)
    clear_budgets = method(clear_budgets)
    create_token = method(create_token)
    revoke_token = method(revoke_token)


class AsyncOperations:
    """The same operations, to be awaited."""

    published = async_method(list_published)
    published_workflow = async_method(show_published)
    read_case_file = async_method(read_case_file)
    preview_evaluator = async_method(preview_evaluator)
    plan_published = async_method(plan_published)
    submit_published = async_method(submit_published)
    start_published = async_method(start_published)
    sweeps = async_method(list_sweeps)
    executions = async_method(list_runs)
    status = async_method(status)
    show = async_method(show)
    cells = async_method(cells)
    outputs = async_method(outputs)
    read_value = async_method(read_value)
    log = async_method(log)
    count_events = async_method(count_events)
    history = async_method(history)
    checkpoint = async_method(show_checkpoint)
    tree = async_method(tree)
    list_files = async_method(list_files)
    read_file = async_method(read_file)
    read_archive = async_method(read_archive)
    compare_files = async_method(compare_files)
    diff = async_method(diff)
    matrix = async_method(matrix)
    report = async_method(report)
    compare = async_method(compare)
    compare_rows = async_method(compare_rows)
    score_published = async_method(score_published)
    scoring = async_method(show_scoring)
    cancel_scoring = async_method(cancel_scoring)
    draw_labels = async_method(draw_labels)
    give_label = async_method(give_label)
    labels = async_method(list_labels)
    add_comment = async_method(add_comment)
    delete_comment = async_method(delete_comment)
    comments = async_method(list_comments)
    check_judge = async_method(check_judge)
    series = async_method(series)
    costs = async_method(costs)
    baselines = async_method(list_baselines)
    baseline = async_method(show_baseline)
    questions = async_method(find_questions)
    answer = async_method(answer)
    resume = async_method(resume)
    retry = async_method(retry)
    name_checkpoint = async_method(name_checkpoint)
    rollback = async_method(rollback)
    undo_rollback = async_method(undo_rollback)
    pause = async_method(pause)
    cancel = async_method(cancel)
    breakpoints = async_method(list_breakpoints)
    set_breakpoints = async_method(set_breakpoints)
    schedules = async_method(list_schedules)
    schedule = async_method(show_schedule)
    schedule_history = async_method(schedule_history)
    pause_schedule = async_method(pause_schedule)
    resume_schedule = async_method(resume_schedule)
    sessions = async_method(list_sessions)
    session = async_method(describe_session)
    budgets = async_method(list_budgets)
    tokens = async_method(list_tokens)
    answer_all = async_method(answer_all)
    preview_answers = async_method(preview_answers)
    fork = async_method(fork)
    fork_all_cases = async_method(add_row)
    extend = async_method(extend)
    plan_extension = async_method(plan_extension)
    stop_combination = async_method(stop_combination)
    pin = async_method(pin)
    unpin = async_method(unpin)
    delete = async_method(delete)
    preview_delete = async_method(preview_delete)
    erase = async_method(erase)
    preview_erase = async_method(preview_erase)
    pool = async_method(pool)
    set_baseline = async_method(set_baseline)
    remove_baseline = async_method(remove_baseline)
    remove_schedule = async_method(remove_schedule)
    check_schedule = async_method(check_schedule)
    create_session = async_method(create_session)
    change_session = async_method(change_session)
    archive_session = async_method(archive_session)
    delete_session = async_method(delete_session)
    preview_delete_session = async_method(preview_delete_session)
    create_project = async_method(create_project)
    change_project = async_method(change_project)
    projects = async_method(list_projects)
    project = async_method(describe_project)
    create_user = async_method(create_user)
    users = async_method(list_users)
    remove_user = async_method(remove_user)
    create_team = async_method(create_team)
    teams = async_method(list_teams)
    change_team = async_method(change_team)
    grant_access = async_method(grant_access)
    access = async_method(list_access)
    revoke_access = async_method(revoke_access)
    set_budgets = async_method(set_budgets)
    clear_budgets = async_method(clear_budgets)
    create_token = async_method(create_token)
    revoke_token = async_method(revoke_token)
