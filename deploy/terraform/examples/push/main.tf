# Push mode: one Cloud Run service that takes events in, is called by Pub/Sub, and is gone while nothing happens.
# Handlers are HTTP targets, registered at the API. Cloud Scheduler makes the minute's pass.

locals {
  services = ["cloudscheduler", "compute", "iam", "pubsub", "run", "secretmanager", "servicenetworking", "sqladmin"]

  name = "wakeq"
  # Texts that stand in the tokens and in the service's configuration, and have to be the same in both.
  api_audience  = "${var.project}/${local.name}"
  push_audience = "${var.project}/${local.name}/push"

  # Every process that emits or listens has it.
  broadcast = var.broadcast ? { WAKEQ_BROADCAST = "1" } : {}
}

resource "google_project_service" "this" {
  for_each = toset(local.services)

  project            = var.project
  service            = "${each.value}.googleapis.com"
  disable_on_destroy = false
}

module "network" {
  source     = "../../modules/network"
  project    = var.project
  region     = var.region
  depends_on = [google_project_service.this]
}

module "accounts" {
  source     = "../../modules/accounts"
  project    = var.project
  operators  = var.operators
  depends_on = [google_project_service.this]
}

module "database" {
  source  = "../../modules/database"
  project = var.project
  region  = var.region
  network = module.network.network

  deletion_protection = var.database_deletion_protection

  clients = {
    api     = { account = module.accounts.api, role = "api" }
    migrate = { account = module.accounts.migrate, role = "owner" }
  }
}

module "service" {
  source          = "../../modules/service"
  project         = var.project
  region          = var.region
  name            = local.name
  image           = var.image
  account         = module.accounts.api
  topic           = local.name
  audience        = local.api_audience
  database        = { connection_name = module.database.connection_name, secret = module.database.secrets["api"] }
  network         = module.network.network
  subnetwork      = module.network.subnetwork
  trusted_proxies = var.trusted_proxies
  env             = local.broadcast
  secrets         = { WAKEQ_SECRET_KEY = module.secret_key.secret }

  deletion_protection = var.deletion_protection

  push = {
    account           = module.accounts.invoker
    audience          = local.push_audience
    handler_timeout_s = var.handler_timeout_s
  }
}

# What signs deliveries is encrypted with it; those that have the database's backups have no part in it.
module "secret_key" {
  source     = "../../modules/secret_key"
  project    = var.project
  region     = var.region
  readers    = { api = module.accounts.api }
  depends_on = [google_project_service.this]
}

module "queue" {
  source     = "../../modules/queue"
  project    = var.project
  name       = local.name
  publishers = merge({ api = module.accounts.api }, var.publishers)
  viewers    = { api = module.accounts.api }
  broadcast  = var.broadcast
  listeners  = { api = module.accounts.api }

  push = {
    endpoint          = "${module.service.url}/v1/push"
    account           = module.accounts.invoker
    audience          = local.push_audience
    handler_timeout_s = var.handler_timeout_s
  }
}

module "jobs" {
  source          = "../../modules/jobs"
  project         = var.project
  region          = var.region
  image           = var.image
  migrate_account = module.accounts.migrate
  doctor_account  = module.accounts.api
  topic           = local.name # not the outputs: the jobs come first, and the queue needs the service's address
  subscription    = local.name
  database        = { connection_name = module.database.connection_name, secret = module.database.secrets["owner"] }
  doctor_secret   = module.database.secrets["api"]
  doctor_secrets  = { WAKEQ_SECRET_KEY = module.secret_key.secret }
  # The service serves the API, and runs what is pushed.
  api_roles    = [module.database.roles["api"]]
  worker_roles = [module.database.roles["api"]]
  network      = module.network.network
  subnetwork   = module.network.subnetwork
  env          = merge({ WAKEQ_HORIZON = "0s" }, local.broadcast)
}
