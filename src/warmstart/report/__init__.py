"""What a run found, as one static page that opens from disk: charts, tables, sentences."""

from warmstart.report import charts as charts
from warmstart.report.page import Figure as Figure
from warmstart.report.page import Report as Report
from warmstart.report.page import Section as Section
from warmstart.report.page import Table as Table
from warmstart.report.page import write_report as write_report
